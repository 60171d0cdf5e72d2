"""``obs doctor``: what of the pack can and cannot work on these servers, and the mend for each.

Sources are read at the edges (triton, vllm, prometheus, repository, recorded) into ``facts.Facts``; each module of
``obs.doctor.checks`` is a pure function from those facts to findings; ``report`` prints them.
"""
