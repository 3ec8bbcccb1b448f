"""The round loop of Motley on real clients: the server app, the client app, and the messages
between them."""
