"""Layers that are more than one product: recurrent ones, deformed and compared images, losses, gradients."""
