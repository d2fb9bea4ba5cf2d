"""The remedies, one module each; `truetune.fixing.remedy_catalogue` finds them."""
