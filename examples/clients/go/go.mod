module example.org/fetchwise-client

go 1.19
