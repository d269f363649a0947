"""Validates Kubernetes manifests against the API server's own schemas, many documents and versions in one process.

Reads JSON lines from standard input: {"version": "1.29", "name": ..., "documents": [...]}, one for each set of manifests.
Writes one JSON line for each: {"validated": N, "without_schema": [KIND, ...], "refused": [{"document", "path", "message"}]}.
Unknown keys are refused (the schemas are the strict ones). Custom resources have no schema there and are named.
"""

import functools
import json
import sys

from jsonschema.validators import Draft202012Validator
from kubernetes_validate import utils
from referencing import Registry, Resource

# Reading a version's definitions takes longer than all that is validated with them.
contents = functools.lru_cache(maxsize=None)(utils.schema_contents)


@functools.lru_cache(maxsize=None)
def folder(version):
    """The folder of the strict schemas of one minor version."""
    release = next((known for known in utils.all_versions() if utils.major_minor(known) == version), None)
    if release is None:
        raise SystemExit(f"kubernetes-validate has no schemas for {version}, only {utils.all_versions()}")
    return f"kubernetes-json-schema/v{release}-local-strict"


@functools.lru_cache(maxsize=None)
def validator(version, kind, api_version):
    """The validator of one kind, or None where this version has no such kind."""
    group, _, of_group = api_version.rpartition("/")
    suffix = f"{group.split('.')[0]}-{of_group}" if group else of_group
    try:
        schema = contents(f"{folder(version)}/{kind.lower()}-{suffix}.json", version)
    except FileNotFoundError:
        return None
    definitions = contents(f"{folder(version)}/_definitions.json", version)
    registry = Resource.from_contents(definitions) @ (Resource.from_contents(schema) @ Registry())
    return Draft202012Validator(schema, registry=registry)


def judge(request):
    """The answer to one line."""
    answer = {"validated": 0, "without_schema": [], "refused": []}
    for document in request["documents"]:
        name = f"{document['kind']} {document['metadata']['name']}"
        of_kind = validator(request["version"], document["kind"], document["apiVersion"])
        if of_kind is None:
            answer["without_schema"].append(f"{document['apiVersion']} {document['kind']}")
            continue
        answer["validated"] += 1
        for error in of_kind.iter_errors(document):
            path = ".".join(str(step) for step in error.path)
            answer["refused"].append({"document": name, "path": path, "message": error.message})
    return answer


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(judge(json.loads(line))), flush=True)
