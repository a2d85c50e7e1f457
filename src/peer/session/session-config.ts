import type { LinkKind } from '../link/link.ts'

/** Settings of one link's session. */
export interface SessionConfig {
  /** DATA bytes, including headers, that the other side may have in flight to this one, by kind of link. */
  windowBytes: Record<LinkKind, number>
  /** Credit is returned when this share of the window has been consumed, or after `creditIdleMs`. */
  creditShare: number
  /** Credit is returned after this time at the latest. units: ms. */
  creditIdleMs: number
  /** Interval between PINGs. units: ms. */
  pingMs: number
  /** Silence of this length is reported (`onsuspect`). units: ms. */
  suspectMs: number
  /** Silence of this length ends the session. units: ms. */
  deadMs: number
  /** How long to wait for the other side's HELLO. units: ms. */
  helloMs: number
  /** How long `leave` waits for the other side to consume what was sent and to say goodbye. units: ms. */
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

/** Traffic of one link's session so far. */
export interface SessionStats {
  kind: LinkKind
  /** Bytes of data, without headers and fingerprints. */
  payloadBytesSent: number
  payloadBytesReceived: number
  dataFramesSent: number
  dataFramesReceived: number
  controlFramesSent: number
  controlFramesReceived: number
  /** Frames of another epoch: counted and dropped. */
  foreignEpochFrames: number
  /** Most DATA bytes ever in flight and not credited; at most the other side's window. */
  peakInFlightBytes: number
  /** Round trip of the last answered PING; NaN before the first. units: ms. */
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

/** How full the link to another rank was: data that was sent and not credited. */
export interface LinkPeaks {
  /** Most bytes in flight at once. */
  peakInFlightBytes: number
  /** Most frames in flight at once. */
  peakInFlightFrames: number
  /** Bytes that may be in flight. */
  windowBytes: number
}
