/** Joins two RTCPeerConnections in one page; `prepare` makes the channels, before the offer. */
export async function connectPeers(
  prepare: (near: RTCPeerConnection, far: RTCPeerConnection) => void,
): Promise<{ near: RTCPeerConnection; far: RTCPeerConnection; close: () => void }> {
  const near = new RTCPeerConnection()
  const far = new RTCPeerConnection()
  let candidates = 0
  near.onicecandidate = ({ candidate }) => {
    if (!candidate?.candidate) return
    candidates += 1
    void far.addIceCandidate(candidate)
  }
  far.onicecandidate = ({ candidate }) => {
    if (candidate?.candidate) void near.addIceCandidate(candidate)
  }
  prepare(near, far)
  await near.setLocalDescription()
  await far.setRemoteDescription(near.localDescription!)
  await far.setLocalDescription()
  await near.setRemoteDescription(far.localDescription!)
  const deadlineMs = performance.now() + 10_000
  while (near.connectionState !== 'connected' || far.connectionState !== 'connected') {
    if (performance.now() > deadlineMs)
      throw new Error(
        `WebRTC: the two ends of this page did not connect within 10 s (${near.connectionState}); ${candidates} ICE candidates. ` +
          'With none: no default route, and the page lacks the camera and microphone permission.',
      )
    await new Promise((resolve) => {
      setTimeout(resolve, 5)
    })
  }
  return {
    near,
    far,
    close: () => {
      near.close()
      far.close()
    },
  }
}

/** Both ends of the pre-negotiated bulk channel. */
export function bulkChannels(
  near: RTCPeerConnection,
  far: RTCPeerConnection,
): [RTCDataChannel, RTCDataChannel] {
  const options = { negotiated: true, id: 64 }
  return [near.createDataChannel('bulk', options), far.createDataChannel('bulk', options)]
}

/** Resolves when `channel` is open. */
export function channelOpen(channel: RTCDataChannel): Promise<void> {
  if (channel.readyState === 'open') return Promise.resolve()
  return new Promise((resolve) => {
    channel.addEventListener('open', () => resolve(), { once: true })
  })
}
