"""The token view over data of any size: rows by their number, drawn when they are asked for."""
