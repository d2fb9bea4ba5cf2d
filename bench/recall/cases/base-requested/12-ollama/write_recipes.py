import json
import sys

import yaml
from ollama import Client


def load_settings(path):
    with open(path) as fh:
        return yaml.safe_load(fh)


def write_recipe(client, settings, ingredients):
    reply = client.chat(
        model=settings["model"],
        messages=[{"role": "user", "content": f"Ingredients: {ingredients}"}],
        keep_alive=settings["keep_alive"],
    )
    return reply["message"]["content"].strip()


def main():
    settings = load_settings(sys.argv[1])
    client = Client(host=settings["host"])
    with open(settings["input"]) as src, open(settings["output"], "w") as out:
        for line in src:
            line = line.strip()
            if line:
                recipe = write_recipe(client, settings, line)
                out.write(json.dumps({"ingredients": line, "recipe": recipe}) + "\n")


if __name__ == "__main__":
    main()
