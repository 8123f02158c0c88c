import sys

from pip import ask

ask(sys.argv[1:])
