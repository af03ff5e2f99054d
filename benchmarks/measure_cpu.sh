#!/usr/bin/env bash
# Measures the records of a CPU machine, one after the other (about two hours on 2 cores): benchmarks/measure_cpu.sh [NAME ...]
# Nothing else may run meanwhile. A record that exists is never written over: the new one gets a number behind its name.
set -uo pipefail
cd "$(dirname "$0")/.."
bench() { local name=$1; shift; .venv/bin/python -m fastdqn bench "$@" --name "$name"; }
wanted() { [ ${#only[@]} -eq 0 ] || [[ " ${only[*]} " == *" $1 "* ]]; }
measure() { local name=$1; wanted "$name" && { echo "== $name"; bench "$@"; }; return 0; }
only=("$@")
textbook_env=(--set "switches.off=[native_atari]")

measure ladder-snake ladder snake --leave-one-out --seconds 6
measure ladder-pong ladder pong --seconds 6
measure peers-snake peers snake --seconds 8
measure peers-cartpole peers CartPole-v1 --seconds 8
measure peers-pong peers pong --seconds 10
measure profile-snake profile snake --seconds 4
measure profile-pong profile pong --seconds 5
measure envs-snake envs snake --seconds 2 --lanes 1,8,64,512
measure envs-pong envs pong --seconds 3 --lanes 1,2,8,16
measure throughput throughput --repeats 3

# Seed 000, and 001/002: steps between updates, numbers of environments, each with a batch grown in proportion
measure steps-snake sweep snake learner.steps_per_update=1,2,4,8,16 learner.batch_size=32,64,128,256,512 --seconds 4 \
  --set network.kind=mlp --set "network.hidden=[256,256]" --set network.channels=null
measure lanes-snake sweep snake actor.lanes=1,2,3,4,6,8,16 learner.steps_per_update=1,2,3,4,6,8,16 \
  learner.batch_size=32,64,96,128,192,256,512 --seconds 4 \
  --set network.kind=mlp --set "network.hidden=[256,256]" --set network.channels=null
measure wrappers-pong sweep pong "${textbook_env[@]}" --seconds 5 \
  env.episodic_life=false,true,false,true,false,false,false,false,false \
  env.clip_reward=true,true,false,false,true,true,true,true,true \
  env.to_channels_first=true,true,true,true,false,true,true,true,true \
  env.noop_max=30,30,30,30,30,0,30,30,30 \
  env.fire_reset=true,true,true,true,true,true,false,true,true \
  env.max_pool=true,true,true,true,true,true,true,false,true \
  replay.stack=4,4,4,4,4,4,4,4,2
measure resize-pong sweep pong "${textbook_env[@]}" env.resize=cv2_area,cv2_linear,cv2_nearest,pillow,torch --seconds 5

# Seed 004: training every so many steps (changes samples per step), threads, batch, hidden size, game length, logging
measure every-snake sweep snake learner.steps_per_update=8,16,32,64,128 --seconds 4
measure threads-snake sweep snake learner.threads=1,2 --seconds 4
measure threads-pong sweep pong learner.threads=1,2 --seconds 5
measure batch-snake sweep snake learner.batch_size=32,64,128,256,512 --seconds 4
measure hidden-snake sweep snake "network.hidden=[64],[128],[256],[512]" --seconds 4
measure game-length-snake sweep snake env.max_steps=100,300,500,1000 --seconds 4
measure logging-snake sweep snake log.every_steps=100,1000,10000 --seconds 4

# Minutes until solved
measure minutes-cartpole ladder CartPole-v1 --to-target --seeds 3 --seconds 3 --repeats 1
