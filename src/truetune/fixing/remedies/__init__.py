"""The remedies, one module each; `truetune.fixing.catalogue` finds them."""
