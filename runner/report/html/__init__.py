"""The HTML report: one page, with an index and chunks of cases beside it. It works from a file, without a network.

Everything from a run is hostile text. It travels as JSON within script files, and the page's own script puts it into the document as text
only, never as markup. The template has the few words that are there without a script; Jinja2 escapes them.

| module     | makes                                                                      |
|------------|----------------------------------------------------------------------------|
| ``writing``  | the files, in a new folder that then replaces the former one               |
| ``index``    | one row for each case, as columns: what the page filters by                |
| ``details``  | what the page of a case shows, in chunks                                   |
| ``observed`` | errors, histograms, candidates, code and graphs, from a case's own files   |
| ``sources``  | the text of the specs, where the files are still those that were run       |
| ``overview`` | the page of the run                                                        |
| ``trace``    | the timeline, also as a trace for Perfetto                                 |
| ``scripts``  | JSON that is safe in a script                                              |
"""
