"""`python -m shardc` is the binary."""

import subprocess
import sys

from ._binary import binary

if __name__ == "__main__":
    sys.exit(subprocess.run([str(binary()), *sys.argv[1:]], check=False).returncode)
