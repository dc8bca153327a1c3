"""Options of priors and likelihoods, which are fields of theirs, as parameters in the reference.

The reference is made from the text of the library. Equinox makes `__init__` from the fields when
the class is imported, so that the text has none.
"""

import griffe


class Options(griffe.Extension):
    """Gives classes with static fields an `__init__` with their options, as Equinox does."""

    def on_class_members(self, *, cls: griffe.Class, **_) -> None:
        """Called for each class, when its fields are known."""
        options = []
        for name, field in cls.attributes.items():
            call = field.value
            if not isinstance(call, griffe.ExprCall) or str(call.function) != "eqx.field":
                continue
            if name == "num_inputs":  # which `initialise` sets
                continue
            given = {
                argument.name: argument.value
                for argument in call.arguments
                if isinstance(argument, griffe.ExprKeyword)
            }
            if str(given.get("static")) == "True" and "default" in given:
                kind = griffe.ParameterKind.keyword_only
                options.append(griffe.Parameter(name, kind=kind, default=given["default"]))
        if options and "__init__" not in cls.members:
            itself = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
            parameters = griffe.Parameters(itself, *options)
            cls.set_member("__init__", griffe.Function("__init__", parameters=parameters))
