/** Message of a rank to the opener of its tab when it has joined the default group; crosses as JSON. */
export interface Joined {
  rank: number
  worldSize: number
}

/** The name of the page function that takes it, and of a worker's channel: see `callLauncher`. */
export const joinedName = '__tabringJoined'
