"""Studies: what a method does on a set of functions, as curves, a table, a plot and a page.

curves      one run, recorded as a curve
summary     curves -> the rows of a table
pool        many runs on several processes, with progress
folder      where results lie, and which of them can be kept
provenance  what they were made with
plots, page curves and rows -> figures, one HTML file
demo        the first study
"""
