complete --keep-order --exclusive --command brindle --arguments "(BRINDLE_COMPLETE=fish brindle -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token))"
complete --keep-order --exclusive --command lfs --arguments "(BRINDLE_COMPLETE=fish brindle -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token))"
complete --keep-order --exclusive --command lctl --arguments "(BRINDLE_COMPLETE=fish brindle -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token))"
