-- burst_buffer.lua: burst buffers of Brindle for Slurm's plug-in burst_buffer/lua.
--
-- Slurm looks for it beside slurm.conf. Directives are those of burst_buffer/datawarp where burst_buffer.conf says Directive=DW.
-- Each function calls dacctl and hands on what it says; the orchestrator of Brindle does the work.

-- The program, by its path; the environment of slurmctld may name another one.
local DACCTL = os.getenv("BRINDLE_DACCTL") or "/usr/sbin/dacctl"

-- A word for the shell, whatever is in it.
local function quoted(word)
  return "'" .. tostring(word):gsub("'", "'\\''") .. "'"
end

-- Calls dacctl; whether it worked, and what it printed. Lua 5.1 does not tell the exit code of a pipe, so the shell prints it.
local function dacctl(...)
  local words = { quoted(DACCTL) }
  for i = 1, select("#", ...) do
    words[#words + 1] = quoted((select(i, ...)))
  end
  local pipe, why = io.popen(table.concat(words, " ") .. " 2>&1; echo \"exit=$?\"")
  if not pipe then
    return slurm.ERROR, "cannot run " .. DACCTL .. ": " .. tostring(why)
  end
  local said = pipe:read("*a") or ""
  pipe:close()
  local text, code = said:match("^(.-)%s*exit=(%d+)%s*$")
  if code == "0" then
    return slurm.SUCCESS, text
  end
  return slurm.ERROR, text or said
end

function slurm_bb_job_process(script)
  return dacctl("job_process", "--job", script)
end

function slurm_bb_pools()
  return dacctl("pools")
end

-- pool and bytes are what Slurm has added up; the script says which part of it is the job's own buffer.
function slurm_bb_setup(job, uid, gid, pool, bytes, script)
  return dacctl("setup", "--token", job, "--caller", "LUA", "--user", uid, "--groupid", gid,
    "--capacity", tostring(pool) .. ":" .. tostring(bytes), "--job", script)
end

function slurm_bb_data_in(job, script)
  return dacctl("data_in", "--token", job, "--job", script)
end

function slurm_bb_real_size(job)
  local rc, text = dacctl("real_size", "--token", job)
  if rc ~= slurm.SUCCESS then
    return rc, text
  end
  return rc, text:match('"capacity":(%d+)') or "0"
end

function slurm_bb_paths(job, script, pathfile)
  return dacctl("paths", "--token", job, "--job", script, "--pathfile", pathfile)
end

-- Slurm 22.05 does not say which nodes the job has: dacctl asks it.
function slurm_bb_pre_run(job, script)
  return dacctl("pre_run", "--token", job, "--job", script)
end

function slurm_bb_post_run(job, script)
  return dacctl("post_run", "--token", job, "--job", script)
end

function slurm_bb_data_out(job, script)
  return dacctl("data_out", "--token", job, "--job", script)
end

-- Later releases of Slurm ask whether a copy is complete: data_in and data_out end when it is.
function slurm_bb_test_data_in(job, script)
  return slurm.SUCCESS, ""
end

function slurm_bb_test_data_out(job, script)
  return slurm.SUCCESS, ""
end

function slurm_bb_job_teardown(job, script, hurry)
  if tostring(hurry) == "true" then
    return dacctl("teardown", "--token", job, "--job", script, "--hurry")
  end
  return dacctl("teardown", "--token", job, "--job", script)
end

-- The words of scontrol show bbstat.
function slurm_bb_get_status(...)
  return dacctl("status", ...)
end
