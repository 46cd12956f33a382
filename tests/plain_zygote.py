"""``python -m tests.plain_zygote SOCKET PARENT``: a zygote without torch, whose workers do nothing until they are killed."""

from runner.worker.process import zygote


def main() -> None:
    zygote.serve(zygote.Zygote(zygote.begin(), danger=zygote.danger_of_threads))


if __name__ == "__main__":
    main()
