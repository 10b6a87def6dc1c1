"""Bahri and Hanin, Les Houches lectures: networks of large depth and width at initialisation."""
