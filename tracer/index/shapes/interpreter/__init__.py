"""An abstract interpreter: runs a function of the program over symbolic values."""
