"""Draws a small chart: what a program leaves in artifacts/ comes back with its answer."""
import os
import platform

import matplotlib.pyplot as plt

squares = [n * n for n in range(20)]
plt.figure(figsize=(4, 3))
plt.plot(squares, marker="o")
plt.title("squares")
plt.savefig("artifacts/squares.png")

print(f"Hello from Python {platform.python_version()} as uid {os.getuid()}, process {os.getpid()}")
print("The root folder here:", " ".join(sorted(os.listdir("/"))))
