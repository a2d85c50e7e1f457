/** The browser as its user-agent string gives it away, and the system: `Chrome on Linux`. */
export function browserName(userAgent: string): string {
  const has = (text: string) => userAgent.includes(text)
  const browser = has('Edg/')
    ? 'Edge'
    : has('Firefox/')
      ? 'Firefox'
      : has('Chrome/')
        ? 'Chrome'
        : has('Safari/')
          ? 'Safari'
          : 'Browser'
  const system = has('Android')
    ? 'Android'
    : has('iPhone') || has('iPad')
      ? 'iOS'
      : has('Windows')
        ? 'Windows'
        : has('Mac OS')
          ? 'macOS'
          : has('Linux')
            ? 'Linux'
            : ''
  return system ? `${browser} on ${system}` : browser
}
