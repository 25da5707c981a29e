import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// Everything the page needs ends up in `dist`, which the shell embeds: no inline script or style,
// nothing from the network.
export default defineConfig({
  plugins: [svelte({ configFile: false })],
  build: { outDir: "dist", assetsInlineLimit: 0, modulePreload: { polyfill: false } },
});
