"""What classes have only when they are imported, for the reference, which is made from their text.

Equinox makes `__init__` from the fields of priors and likelihoods.
"""

import griffe


class Options(griffe.Extension):
    """Gives classes with static fields an `__init__` with their options."""

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
