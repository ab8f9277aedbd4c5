"""The endpoints, a file for each kind of thing. Reads are for viewers, actions for operators.

Below its handlers each file has what they do: what is shown (`..._page`, `..._detail`), what is planned (`plan_...`). Pages call the same.
"""
