"""Execution of planned jobs: on this machine, with the services that cases need."""
