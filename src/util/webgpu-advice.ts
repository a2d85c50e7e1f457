/**
 * What gives a page WebGPU in the browser of this user-agent string: `missing` where it has none, `adapter` where it offers no adapter.
 *
 * source: MDN's browser-compat-data 8.1.9; Firefox 153 on Linux was tried.
 */
export function webGpuAdvice(userAgent = globalThis.navigator?.userAgent ?? ''): {
  readonly missing: string
  readonly adapter: string
} {
  const isOn = (text: string) => userAgent.includes(text)
  if (isOn('iPhone') || isOn('iPad'))
    return {
      missing: 'On iPhones and iPads every browser has WebGPU from iOS 26 on: update the system.',
      adapter: 'Restart the browser.',
    }
  if (isOn('Firefox/'))
    return {
      missing: isOn('Android')
        ? 'Firefox for Android has no WebGPU: use Chrome.'
        : isOn('Linux') || isOn('X11')
          ? 'In Firefox on Linux, open about:config, set dom.webgpu.enabled to true, and restart it.'
          : Number(/Firefox\/(\d+)/.exec(userAgent)?.[1]) < 147
            ? 'Firefox has it from 141 on Windows, and from 147 on Macs with Apple silicon: update it.'
            : 'In about:config set dom.webgpu.enabled to true, and restart Firefox.',
      adapter:
        'In Firefox, about:support says what is blocked; gfx.webgpu.ignore-blocklist in about:config passes over the list. Without a graphics card, compute on the CPU.',
    }
  if (isOn('Safari/') && !isOn('Chrome/') && !isOn('Chromium/'))
    return {
      missing: 'Safari has it from 26 on macOS 26: update the system.',
      adapter: 'Restart the browser.',
    }
  return {
    missing: 'In Chrome on Linux, turn on chrome://flags/#enable-unsafe-webgpu and restart it.',
    adapter: 'chrome://gpu says what is blocked. Without a graphics card, compute on the CPU.',
  }
}
