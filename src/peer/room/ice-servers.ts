import * as v from 'valibot'

/** Limits of the ICE servers that a server sends its tabs; a browser asks every one of them, so a few are enough. */
export const iceLimits = {
  servers: 8,
  urlsPerServer: 8,
  urlChars: 300,
  credentialChars: 600,
} as const

const credential = v.pipe(v.string(), v.maxLength(iceLimits.credentialChars))

export const iceServersSchema = v.pipe(
  v.array(
    v.object({
      urls: v.pipe(
        v.array(v.pipe(v.string(), v.maxLength(iceLimits.urlChars))),
        v.maxLength(iceLimits.urlsPerServer),
      ),
      username: v.optional(credential),
      credential: v.optional(credential),
    }),
  ),
  v.maxLength(iceLimits.servers),
)

/** A STUN or TURN server, as RTCPeerConnection takes it. */
export type IceServer = v.InferOutput<typeof iceServersSchema>[number]
