# messages.py under each of its names.
for name in broker sender browser collector relay-messages; do
	install -m 755 "$REPOSITORY/tests/blackbox/docs/beds/messages.py" ./$name
done
