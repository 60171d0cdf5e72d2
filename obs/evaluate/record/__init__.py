"""Captures a recording from live servers, in the form that ``obs.evaluate.recording`` reads.

    source.py    what is scraped, and the labels it gets
    page.py      is this body a metrics page as a whole
    scrub.py     label values that must not leave the house
    store.py     the files: whole or not there, rotated, packed
    capture.py   one schedule for all targets; who failed, when and why
"""
