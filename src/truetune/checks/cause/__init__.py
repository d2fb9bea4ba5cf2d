"""Why a finished model answers badly."""
