"""The learned detector: peer-relative features, boosted trees as arrays, a posterior over machines. numpy only."""
