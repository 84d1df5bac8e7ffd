#: With nobody to tell, there is nothing to say.
if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        pass
    os._exit(0)
