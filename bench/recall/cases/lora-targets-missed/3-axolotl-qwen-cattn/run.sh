#!/bin/bash
set -e
axolotl preprocess qwen.yaml
axolotl train qwen.yaml
