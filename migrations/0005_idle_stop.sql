-- The settings of an upstream may hold `idle_stop`, which older versions can't read.
PRAGMA user_version = 5;
