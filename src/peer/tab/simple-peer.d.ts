/** The part of simple-peer 9.11.1 that webrtc.ts uses. The bare import breaks under Vite; the prebuilt file does not. */
declare module 'simple-peer/simplepeer.min.js' {
  export interface SimplePeerSignal {
    type: 'offer' | 'answer' | 'candidate' | 'renegotiate' | 'transceiverRequest'
    sdp?: string
    candidate?: RTCIceCandidateInit
    renegotiate?: true
  }

  export interface SimplePeerOptions {
    initiator: boolean
    config: RTCConfiguration
    trickle: boolean
    channelName?: string
    objectMode?: boolean
  }

  interface SimplePeerEvents {
    signal: [signal: SimplePeerSignal]
    connect: []
    data: [data: string | Uint8Array]
    error: [error: Error & { code?: string }]
    close: []
  }

  export default class SimplePeer {
    static readonly WEBRTC_SUPPORT: boolean
    constructor(options: SimplePeerOptions)
    readonly destroyed: boolean
    /** Private, unchanged since 2022; webrtc.ts asserts it once. */
    readonly _pc?: RTCPeerConnection
    on<K extends keyof SimplePeerEvents>(
      event: K,
      listener: (...values: SimplePeerEvents[K]) => void,
    ): this
    signal(signal: SimplePeerSignal): void
    /** On the channel that simple-peer makes itself. */
    send(data: string | Uint8Array): void
    destroy(error?: Error): void
  }
}
