"""What a command line may ask for: the options of commands, and the optional tools."""
