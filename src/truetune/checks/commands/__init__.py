"""Rules on the commands of shell scripts, job files and Dockerfiles."""
