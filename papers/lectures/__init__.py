"""Pehlevan and Bordelon, lecture notes on the infinite-width limits of deep networks."""
