"""The GPU bench: what truetune says and does, measured on one CUDA card by one command.

python -m bench.gpu --out FOLDER             on a machine with a card: all sections, in 14 minutes
python -m bench.gpu --out FOLDER --size tiny on any machine, in small: does the bench itself work?
python -m bench.gpu.page FOLDER/gpu.json     write the page once more from results

It needs no network and no files: tokenizer, rows and weights are made from a seed. Each section is a module with
`measure(size, budget)`, which yields one Entry for each thing that it measured. Sections run in processes of their own
(a device-side assert or a hang in one leaves the others alone), and each entry is on disk as soon as it is known.
"""
