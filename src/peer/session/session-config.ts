import type { LinkKind } from '../link/link.ts'

export interface SessionConfig {
  /** DATA bytes (headers included) that the other side may have under way to us, by kind of link. */
  windowBytes: Record<LinkKind, number>
  /** Credit is returned when this share of the window has been consumed, or after `creditIdleMs`. */
  creditShare: number
  creditIdleMs: number
  /** A PING this often; silence of `suspectMs` is reported, silence of `deadMs` ends the session. */
  pingMs: number
  suspectMs: number
  deadMs: number
  /** How long to wait for the other side's HELLO. */
  helloMs: number
  /** How long `leave` waits for the other side to consume and to say goodbye. */
  leaveMs: number
}

/** Windows: the most that data channels carried without loss, measured with Chromium 156 on loopback; a port loses nothing. */
export const sessionDefaults: SessionConfig = {
  windowBytes: {
    webrtc: 512 * 1024,
    memory: 512 * 1024,
    port: 8 * 1024 * 1024,
    relay: 1024 * 1024,
  },
  creditShare: 1 / 4,
  creditIdleMs: 5,
  pingMs: 1000,
  suspectMs: 3000,
  deadMs: 8000,
  helloMs: 15_000,
  // A data channel sends what was lost again after 0.5 s, then 1 s, then 2 s.
  leaveMs: 6000,
}

export interface SessionStats {
  kind: LinkKind
  /** Bytes of data, headers and fingerprints not counted. */
  payloadBytesSent: number
  payloadBytesReceived: number
  dataFramesSent: number
  dataFramesReceived: number
  controlFramesSent: number
  controlFramesReceived: number
  /** Frames of another epoch: counted and dropped. */
  foreignEpochFrames: number
  /** The most DATA bytes that ever were under way and not credited; at most the other side's window. */
  peakInFlightBytes: number
  /** Round trip of the last answered PING in milliseconds; NaN before the first. */
  rttMs: number
}

export function emptyStats(kind: LinkKind): SessionStats {
  return {
    kind,
    payloadBytesSent: 0,
    payloadBytesReceived: 0,
    dataFramesSent: 0,
    dataFramesReceived: 0,
    controlFramesSent: 0,
    controlFramesReceived: 0,
    foreignEpochFrames: 0,
    peakInFlightBytes: 0,
    rttMs: Number.NaN,
  }
}

/** What was under way at once to another rank at most, sent and not credited: bytes, frames of them, and how many bytes may be. */
export interface LinkFlow {
  peakInFlightBytes: number
  peakInFlightFrames: number
  windowBytes: number
}
