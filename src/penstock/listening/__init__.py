"""LISTENS: sockets, connections and their deadlines; what a request means is for whoever it is given."""
