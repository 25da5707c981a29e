//! The icon in three shapes, told apart without any colour: a gate, an exclamation mark, and the two
//! bars of a pause. It is drawn here, so that there is no file to keep in step.

use tauri::image::Image;

use super::menu::Mood;

/// Pixels on each side; panels draw it smaller.
const SIZE: u32 = 64;
/// How soft an edge is, in parts of the icon.
const EDGE: f32 = 1.0 / SIZE as f32;
/// How far the dark rim reaches around the light figure.
const RIM: f32 = 0.05;

pub fn of(mood: Mood) -> Image<'static> {
    let pixels = (0..SIZE * SIZE).flat_map(|at| {
        let place = |n: u32| (n as f32 + 0.5) / SIZE as f32;
        pixel(distance(mood, place(at % SIZE), place(at / SIZE)))
    });
    Image::new_owned(pixels.collect(), SIZE, SIZE)
}

/// A light figure with a dark rim can be seen on any panel. macOS draws a template in the colour
/// that fits, and looks at how opaque it is only.
fn pixel(distance: f32) -> [u8; 4] {
    let covered = |distance: f32| (0.5 - distance / EDGE).clamp(0.0, 1.0);
    let figure = covered(distance);
    if cfg!(target_os = "macos") {
        return [0, 0, 0, (figure * 255.0) as u8];
    }
    let grey = (figure * 245.0 + (1.0 - figure) * 30.0) as u8;
    [grey, grey, grey, (covered(distance - RIM) * 255.0) as u8]
}

/// How far a point is from the figure, in parts of the icon; negative within. The threshold that the
/// gate stands on is always there; what stands on it tells the three apart at 16 pixels too.
fn distance(mood: Mood, x: f32, y: f32) -> f32 {
    let dot = |at: f32, wide: f32| (x - 0.5).hypot(y - at) - wide;
    let threshold = bar(y, x, 0.88, 0.14, 0.86, 0.055);
    let standing = match mood {
        Mood::Well => arch(x, y).min(dot(0.5, 0.1)),
        Mood::Attention => bar(x, y, 0.5, 0.14, 0.46, 0.085).min(dot(0.68, 0.085)),
        Mood::Paused => bar(x, y, 0.35, 0.2, 0.66, 0.085).min(bar(x, y, 0.65, 0.2, 0.66, 0.085)),
    };
    threshold.min(standing)
}

/// Half a circle on two posts.
fn arch(x: f32, y: f32) -> f32 {
    let (top, post, half) = (0.42, 0.28, 0.06);
    if y < top {
        ((x - 0.5).hypot(y - top) - post).abs() - half
    } else {
        let upright = |at| bar(x, y, at, top, 0.88, half);
        upright(0.5 - post).min(upright(0.5 + post))
    }
}

/// How far (x, y) is from an upright bar at `at`, from `from` to `to`, `half` its width.
fn bar(x: f32, y: f32, at: f32, from: f32, to: f32, half: f32) -> f32 {
    (x - at).hypot(y - y.clamp(from, to)) - half
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOODS: [Mood; 3] = [Mood::Well, Mood::Attention, Mood::Paused];

    /// How many pixels look otherwise on a background of this grey.
    fn differing(one: &[u8], other: &[u8], background: f32) -> usize {
        let seen = |pixel: &[u8]| {
            let opaque = f32::from(pixel[3]) / 255.0;
            f32::from(pixel[0]) * opaque + background * (1.0 - opaque)
        };
        one.chunks(4)
            .zip(other.chunks(4))
            .filter(|(a, b)| (seen(a) - seen(b)).abs() > 100.0)
            .count()
    }

    /// Where the system doesn't draw it in its own colours.
    #[cfg(not(target_os = "macos"))]
    #[test]
    fn the_three_shapes_are_told_apart_on_light_and_dark_panels() {
        let nothing = [0; (4 * SIZE * SIZE) as usize];
        for background in [0.0, 128.0, 255.0] {
            for (at, mood) in MOODS.into_iter().enumerate() {
                let icon = of(mood);
                assert!(differing(icon.rgba(), &nothing, background) > 300, "{mood:?} is seen");
                for other in &MOODS[at + 1..] {
                    let differing = differing(icon.rgba(), of(*other).rgba(), background);
                    assert!(differing > 80, "{mood:?} and {other:?} differ in {differing} pixels");
                }
            }
        }
    }
}
