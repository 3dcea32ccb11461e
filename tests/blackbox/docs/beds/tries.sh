# A clone of the repository.
mkdir docs
cp -r "$REPOSITORY/docs/tries" docs/
