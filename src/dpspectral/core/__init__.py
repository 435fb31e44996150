"""What every room uses: checks of arguments, files, compiled loops."""
