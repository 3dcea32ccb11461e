# What `./dev build` leaves.
mkdir -p target/release
ln -s "$PROGRAMS"/trieline "$PROGRAMS"/trielined "$PROGRAMS"/trieline-trace "$PROGRAMS"/trieline-lab target/release/
