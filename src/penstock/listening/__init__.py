"""LISTENS: sockets, connections and their deadlines; the application decides what a request means."""
