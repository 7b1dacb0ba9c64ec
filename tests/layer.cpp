// layer.cpp - does nothing: a program of one layer of core, to see that it links.
int main() {}
