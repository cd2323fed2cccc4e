"""Makes the JSON schemas that our answers are held to from OpenAI's API description.

    python3 tests/schemas/make_schemas.py openai-openapi.json

writes tests/schemas/NAME.json (draft 2020-12). The tests use the written files; this runs only when
the description changes. On the way each schema is made stricter than the description is:

- OpenAPI 3.0's `nullable` becomes a null type; annotations go;
- every object is closed: no member that the description doesn't have;
- up to 128 choices in an answer, one in a chunk; `usage` required, with its details' counts as they are named there;
- in streams `finish_reason` may be null (the description forgets it for text completions), and the
  final usage chunk, with no choices, is a schema of its own;
- with `echo` the first prompt token's log-probabilities are null (the description forgets that, too).

The description is under the MIT licence: see LICENSE in this folder.
"""

import copy
import json
import sys
from pathlib import Path

OUT = Path(__file__).parent
KEPT = {"type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "allOf", "additionalProperties",
        "minItems", "maxItems"}


def resolve(spec, node):
    """Replaces references by what they refer to, and keeps only what validates."""
    if isinstance(node, list):
        return [resolve(spec, n) for n in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = spec
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        merged = {**target, **{k: v for k, v in node.items() if k != "$ref"}}
        return resolve(spec, merged)
    out = {}
    for key, value in node.items():
        if key == "properties":
            out[key] = {name: resolve(spec, v) for name, v in value.items()}
        elif key in KEPT:
            out[key] = resolve(spec, value)
    if "properties" in out:
        out.setdefault("type", "object")
        out["additionalProperties"] = False
    return {"anyOf": [out, {"type": "null"}]} if node.get("nullable") else out


def at(schema, *path):
    """The sub-schema at a path of member names; "[]" is an array's items."""
    for name in path:
        if "anyOf" in schema:
            schema = schema["anyOf"][0]
        schema = schema["items"] if name == "[]" else schema["properties"][name]
    return schema


def require(schema, *names):
    schema["required"] = sorted({*schema.get("required", []), *names})


def choices(schema, most):
    at(schema, "choices").update(minItems=1, maxItems=most)


def no_choices(schema):
    at(schema, "choices").update(minItems=0, maxItems=0)


def without_null(schema, name):
    inner = schema["properties"][name]
    if "anyOf" in inner:
        rest = [s for s in inner["anyOf"] if s.get("type") != "null"]
        schema["properties"][name] = rest[0] if len(rest) == 1 else {"anyOf": rest}


def or_null(schema):
    return {"anyOf": [schema, {"type": "null"}]}


def echoed(schema):
    """In a text completion's log-probabilities."""
    lists = at(schema, "choices", "[]", "logprobs")["anyOf"][0]["properties"]
    for name in ("token_logprobs", "top_logprobs"):
        lists[name]["items"] = or_null(lists[name]["items"])
    return schema


def answer(schema):
    choices(schema, 128)
    require(schema, "usage", "system_fingerprint")
    return schema


def chunk(schema):
    choices(schema, 1)
    require(schema, "system_fingerprint")
    schema["properties"]["usage"] = {"type": "null"}
    require(at(schema, "choices", "[]"), "logprobs")
    return schema


def usage_chunk(schema):
    no_choices(schema)
    require(schema, "usage", "system_fingerprint")
    without_null(schema, "usage")
    return schema


def text_chunk(schema):
    """A chunk of a streamed text completion, the final usage chunk included."""
    require(echoed(schema), "system_fingerprint")
    finish = at(schema, "choices", "[]")["properties"]
    finish["finish_reason"] = or_null(finish["finish_reason"])
    with_usage = usage_chunk(copy.deepcopy(schema))
    choices(schema, 1)
    schema["properties"]["usage"] = {"type": "null"}
    return {"anyOf": [schema, with_usage]}


def usage_page(schema):
    """Of the kinds of results a bucket may hold, only those of completions."""
    items = at(schema, "data", "[]", "results")["items"]
    mark = "organization.usage.completions.result"
    at(schema, "data", "[]", "results")["items"] = next(
        s for s in items["oneOf"] if mark in s["properties"]["object"].get("enum", []))
    return schema


SCHEMAS = {
    "chat.completion": ("CreateChatCompletionResponse", answer),
    "chat.completion.chunk": ("CreateChatCompletionStreamResponse", chunk),
    "chat.completion.chunk.usage": ("CreateChatCompletionStreamResponse", usage_chunk),
    "completion": ("CreateCompletionResponse", lambda s: answer(echoed(s))),
    "completion.chunk": ("CreateCompletionResponse", text_chunk),
    "models": ("ListModelsResponse", lambda s: s),
    "model": ("Model", lambda s: s),
    "error": ("ErrorResponse", lambda s: s),
    "usage.completions": ("UsageResponse", usage_page),
}


def main():
    spec = json.loads(Path(sys.argv[1]).read_text())
    for name, (source, change) in SCHEMAS.items():
        schema = change(resolve(spec, spec["components"]["schemas"][source]))
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema",
                "$comment": f"{source} of the OpenAI OpenAPI description {spec['info']['version']} (MIT, see "
                            "LICENSE), made stricter by make_schemas.py"}
        (OUT / f"{name}.json").write_text(json.dumps({**head, **schema}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
