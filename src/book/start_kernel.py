"""Add the bases of an error to its traceback, in each kernel that runs a page.

An output keeps the class of an error by its name alone, and `raises` may name a base.
"""


def _name_bases(shell):
    show = shell._showtraceback

    def show_with_bases(kind, error, lines):
        bases = [base.__name__ for base in kind.__mro__[1:-2]]  # not BaseException
        show(kind, error, [*lines, f"A kind of: {', '.join(bases)}"])

    shell._showtraceback = show_with_bases


_name_bases(get_ipython())  # noqa: F821  (IPython's)
del _name_bases
