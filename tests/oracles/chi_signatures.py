#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""chi_signatures.py [--packages FOLDER]: the Python cells of docs/lab/gpu beside the packages that they use: python-chi, and
the clients of OpenStack that it hands out.

A cell that imports, calls or reads what the package does not have, or calls it with arguments that it does not take,
is printed, and the exit status is 1. The packages are read, not run: without their clouds' credentials they do nothing,
and their dependencies are many. Where no folder of wheels is named, pip fetches the versions that the pages name."""
import argparse
import ast
import inspect
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# {the client as chi.clients annotates it: (its package, {attribute: (file, class)})}
CLIENTS = {
    "CinderClient": ("python-cinderclient", {"volumes": ("cinderclient/v3/volumes.py", "VolumeManager")}),
    "NovaClient": ("python-novaclient", {"servers": ("novaclient/v2/servers.py", "ServerManager")}),
}
CELL = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=pathlib.Path, help="a folder with the wheels")
    arguments = parser.parse_args()
    texts = {page: page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs/lab/gpu").glob("*.md"))}
    with tempfile.TemporaryDirectory() as folder:
        wheels = arguments.packages or fetched("".join(texts.values()), pathlib.Path(folder))
        package = read_package(wheel_of("python-chi", wheels)) | {"clients of OpenStack": read_clients(wheels)}
    faults, calls = [], 0
    for page, text in texts.items():
        checker = Checker(package)
        for cell in CELL.findall(text):
            checker.visit(ast.parse(re.sub(r"^%.*$", "", cell, flags=re.M)))
        faults += [f"{page.name}: {fault}" for fault in checker.faults]
        calls += checker.calls
    if calls == 0:
        faults.append("no call of chi on any page")
    print("\n".join(faults) if faults else f"{calls} calls of chi and its clients, all as the packages have them")
    sys.exit(1 if faults else 0)


def fetched(text, folder):
    wanted = [f"python-chi=={re.search(r'python-chi==([0-9.]+)', text)[1]}"]
    wanted += [f"{package}=={re.search(f'`{package}` ([0-9.]+[0-9])', text)[1]}" for package, _ in CLIENTS.values()]
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, *wanted], check=True)
    return folder


def wheel_of(package, folder):
    return next(folder.glob(f"{package.replace('-', '_')}-*.whl"))


def read_clients(folder):
    clients = {}
    for name, (package, parts) in CLIENTS.items():
        client = clients[name] = Class(ast.ClassDef(name=name, body=[], bases=[], keywords=[], decorator_list=[]))
        with zipfile.ZipFile(wheel_of(package, folder)) as files:
            client.parts = {part: read_module(ast.parse(files.read(file)))[kind] for part, (file, kind) in parts.items()}
    return clients


def read_package(wheel):
    """{module: its names}; a name is a Function, a Class or None for what is neither."""
    with zipfile.ZipFile(wheel) as files:
        sources = {name: files.read(name) for name in files.namelist() if re.fullmatch(r"chi/\w+\.py", name)}
    return {pathlib.Path(name).stem: read_module(ast.parse(source)) for name, source in sources.items()}


def read_module(tree):
    names = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names[node.name] = Function(node)
        elif isinstance(node, ast.ClassDef):
            names[node.name] = Class(node)
        elif isinstance(node, ast.Assign):
            names.update({target.id: None for target in node.targets if isinstance(target, ast.Name)})
    return names


class Function:
    def __init__(self, node, bound=False):
        given, kind = node.args, inspect.Parameter
        plain = given.posonlyargs + given.args
        needed = len(plain) - len(given.defaults)
        parameters = [kind(arg.arg, kind.POSITIONAL_OR_KEYWORD, default=kind.empty if i < needed else None)
                      for i, arg in enumerate(plain)][1 if bound else 0:]
        if given.vararg:
            parameters.append(kind(given.vararg.arg, kind.VAR_POSITIONAL))
        parameters += [kind(arg.arg, kind.KEYWORD_ONLY, default=kind.empty if default is None else None)
                       for arg, default in zip(given.kwonlyargs, given.kw_defaults)]
        if given.kwarg:
            parameters.append(kind(given.kwarg.arg, kind.VAR_KEYWORD))
        self.signature = inspect.Signature(parameters)
        self.returns = ast.unparse(node.returns).strip("'\"") if node.returns else ""


class Class:
    def __init__(self, node):
        self.name, self.methods, self.attributes, self.parts = node.name, {}, set(), {}
        fields = [part.target.id for part in node.body if isinstance(part, ast.AnnAssign)]
        self.attributes.update(fields)
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.constructor = inspect.Signature([inspect.Parameter(field, kind) for field in fields])  # of a dataclass
        for part in node.body:
            if isinstance(part, ast.FunctionDef):
                self.add(part)
        self.attributes.update(found.attr for found in ast.walk(node) if isinstance(found, ast.Attribute)
                               and isinstance(found.ctx, ast.Store) and ast.unparse(found.value) == "self")

    def add(self, node):
        marks = {ast.unparse(mark) for mark in node.decorator_list}
        method = Function(node, bound="staticmethod" not in marks)
        if node.name == "__init__":
            self.constructor = method.signature
        elif "property" in marks:
            self.attributes.add(node.name)
        else:
            self.methods[node.name] = method


class Checker(ast.NodeVisitor):
    """Follows the objects of chi through a page's cells: values are modules (dicts), Functions, Classes, and instances
    or lists of instances, as (Class, "one") and (Class, "many"); None is what is not known, and not looked at."""

    def __init__(self, package):
        self.package, self.names, self.faults, self.calls = package, {}, [], 0

    def visit_Import(self, node):
        if any(alias.name.split(".")[0] == "chi" for alias in node.names):
            self.faults.append(f"{ast.unparse(node)}: write `from chi import …`, which can be checked")

    def visit_ImportFrom(self, node):
        if node.module and node.module.split(".")[0] == "chi":
            module = self.package.get(node.module.partition(".")[2] or "__init__")
            for alias in node.names:
                known = self.package if node.module == "chi" else module or {}
                if alias.name not in known:
                    self.faults.append(f"{ast.unparse(node)}: no {alias.name} there")
                self.names[alias.asname or alias.name] = known.get(alias.name)

    def visit_Assign(self, node):
        value = self.value(node.value)
        for target in node.targets:
            self.bind(target, value)

    def visit_For(self, node):
        self.bind(node.target, one_of(self.value(node.iter)))
        for part in node.body:
            self.visit(part)

    def visit_ListComp(self, node):
        for loop in node.generators:
            self.bind(loop.target, one_of(self.value(loop.iter)))
        self.generic_visit(node)

    visit_GeneratorExp = visit_ListComp

    def visit_Call(self, node):
        self.value(node)

    def visit_Attribute(self, node):
        self.value(node)

    def bind(self, target, value):
        if isinstance(target, ast.Name):
            self.names[target.id] = value

    def value(self, node):
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            return self.attribute(node, self.value(node.value))
        if isinstance(node, ast.Subscript):
            return one_of(self.value(node.value))
        if isinstance(node, ast.Call):
            return self.call(node, self.value(node.func))
        self.visit(node)
        return None

    def attribute(self, node, owner):
        if isinstance(owner, dict):
            if node.attr not in owner:
                self.faults.append(f"{ast.unparse(node)}: the module has no such name")
            return owner.get(node.attr)
        if isinstance(owner, tuple) and owner[1] == "one":
            if node.attr in owner[0].parts:
                return owner[0].parts[node.attr], "one"
            if node.attr not in owner[0].methods and node.attr not in owner[0].attributes:
                self.faults.append(f"{ast.unparse(node)}: {owner[0].name} has no such member")
            return owner[0].methods.get(node.attr)
        return None

    def call(self, node, function):
        for part in node.args + [word.value for word in node.keywords]:
            self.value(part)
        if not isinstance(function, (Function, Class)):
            return None
        self.calls += 1
        signature = function.constructor if isinstance(function, Class) else function.signature
        try:
            signature.bind(*node.args, **{word.arg: word.value for word in node.keywords})
        except TypeError as error:
            self.faults.append(f"{ast.unparse(node)}: {error}")
        return (function, "one") if isinstance(function, Class) else self.returned(function.returns)

    def returned(self, annotation):
        """What a function gives, by its annotation: Node, List[Node], Union[Lease, None] …"""
        classes = {known.name: known for module in self.package.values() for known in module.values()
                   if isinstance(known, Class)}
        named = [classes[word] for word in re.findall(r"\w+", annotation) if word in classes]
        return (named[0], "many" if re.match(r"[Ll]ist\b", annotation) else "one") if named else None


def one_of(value):
    return (value[0], "one") if isinstance(value, tuple) and value[1] == "many" else None


if __name__ == "__main__":
    main()
